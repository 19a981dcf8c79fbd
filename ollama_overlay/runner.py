"""The name that the runner had in overlays and scripts of older versions; it is `start` now."""

from __future__ import annotations

import sys

from pilotfish.ollama_overlay.start import main

if __name__ == "__main__":
    sys.exit(main())
