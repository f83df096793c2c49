"""Spark on Kubernetes without a cluster: a stand-in for the API, which starts each pod as a process of this machine.

`spark-submit` and Spark's scheduler for Kubernetes are real, and so are the driver and the executors. What a cluster
would check of the objects is checked against Kubernetes' schemas. There are no images, networks, users and limits.
"""
