"""Models: adapters that turn a model spec into roles. torch is imported here alone, and lazily.

`spec` parses what users type, `registry` finds the provider of its scheme and binds it for a role,
`protocols` says what a role does. This module imports nothing, so that listing schemes stays cheap.
"""
