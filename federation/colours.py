"""Colours of plots: Okabe and Ito's, which colour-blind readers can tell apart.

Markers tell the lines apart in grey.
"""

BLUE, ORANGE, GREEN = "#0072B2", "#E69F00", "#009E73"
