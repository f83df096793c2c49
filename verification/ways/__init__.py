"""The ways to submit, with the real providers of their operators.

The providers do not fit the versions that tests are pinned to, so they have an environment of their own. In it,
`sent_requests` makes the operators of `dags/example_fluss_submit.py`. Outside of it, `__main__` lets `spark-submit` run
what they would send.
"""
