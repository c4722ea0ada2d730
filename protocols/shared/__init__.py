"""What several methods have in common: rounds, servers, numbers that pairs share, losses."""
