"""ScaleJoin: every worker sees every tuple and stores its share."""
