"""A simulation of the whole of tiering, from Airflow's tasks to the lake, in one thread on a virtual clock.

The managers, servicers, store, client and the application's own steps are the real ones; the network, storage, lake and
Spark are small models that crash, lose, delay and repeat. One seed is one run: it replays step by step.
"""
