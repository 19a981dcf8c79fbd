"""A far end: this machine's engine, computing layers of models that other machines load."""
