"""The built-in plugins, registered exactly as a third party would register theirs."""
