"""Studies as artifacts: kept in a sweep's folder, packed for a reviewer, and reproduced from an archive."""
