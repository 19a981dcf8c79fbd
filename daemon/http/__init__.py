"""What every HTTP server here shares: connections with deadlines, a gate for Host and Origin, JSON bodies."""
