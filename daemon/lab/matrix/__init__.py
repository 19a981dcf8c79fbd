"""What pilotfish does with a model of every architecture: rows measured apart from one another, and a page of them."""
