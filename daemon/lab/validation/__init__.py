"""`pilotfish validate`: every drafter tried on real prompts, every id compared, and what it cost and saved."""
