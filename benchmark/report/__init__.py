"""The page results/report.html. May import exhibits and everything left of them."""
