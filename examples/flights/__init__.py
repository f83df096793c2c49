"""The main job on the New York flights data.

`python -m examples.flights run | up | down`, which is what `make run`, `make up` and `make down` call.
"""
