"""The page in a real browser, with a real model behind it: `make test-browser`."""
