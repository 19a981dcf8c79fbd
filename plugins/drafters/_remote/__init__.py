"""The dialects of the remote drafter, and the HTTP below them."""
