"""How certification measures: probes in processes of their own, sites, evidence and costs."""
