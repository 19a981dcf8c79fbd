"""The page: what goes on, for people with a browser, and the API that feeds it."""
