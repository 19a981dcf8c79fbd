"""The coordinator and everything around it: config, registry, controller, front and command line."""
