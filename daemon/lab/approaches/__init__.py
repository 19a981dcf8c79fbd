"""`pilotfish compare`: the ways to speculate that this machine has, side by side, and which to take, if any."""
