"""What the suffix drafter remembers of earlier answers."""
