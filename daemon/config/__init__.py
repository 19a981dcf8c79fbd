"""The configuration: its types, how its file is read, found and edited, and where pilotfish keeps things."""
