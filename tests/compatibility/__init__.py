"""Runs beside other pytest plugins."""
