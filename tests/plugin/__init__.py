"""Acceptance tests of the plugin: users' projects, run by real pytest processes."""
