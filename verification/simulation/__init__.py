"""A simulation of the whole of tiering, from Airflow's tasks to the lake, in one thread on a virtual clock.

The managers, servicers, store, client and the application's own steps are the real ones. The network, storage, lake and
Spark are small models that crash, lose, delay and repeat. A seed determines a run, which replays step by step.
"""
