"""A request, round by round: drafting, verifying, the controller's account, and the text that comes out."""
