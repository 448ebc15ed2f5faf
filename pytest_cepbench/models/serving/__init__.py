"""Servers that a run starts: `serve:CHECKPOINT?engine=vllm` behind a server of the run's own.

Binding needs no server. The first result that is not in the store starts one for all processes of
the run; `supervisor` ends it when none of them is left, however they ended. Requests go through the
adapter of `models/api`.
"""
