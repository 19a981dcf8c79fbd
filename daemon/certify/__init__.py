"""Certification: probes in processes of their own, what they measure, certificates, and the lane they lead to."""
