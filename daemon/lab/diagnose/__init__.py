"""Where two forwards part that should agree: `pilotfish diagnose`, on a trial of a receipt or a prefix of ids."""
