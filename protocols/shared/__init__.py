"""Parts that several methods use: rounds, servers, numbers that pairs share, losses."""
