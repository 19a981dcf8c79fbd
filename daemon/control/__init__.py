"""The control plane: a Unix socket on which runners learn their plans and people learn how things stand."""
