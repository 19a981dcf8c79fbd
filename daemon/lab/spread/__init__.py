"""What a model costs and how fast it decodes, spread over far ends, by the delay of the network between."""
