"""How the suffix drafter finds earlier places, and what it thinks of them."""
