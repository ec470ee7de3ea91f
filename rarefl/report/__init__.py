"""Reports: runs and results of sweeps become tables, tests, pictures and one page."""
