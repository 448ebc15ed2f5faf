"""Statistics of the gate: bounds of paired differences, many cases, looking again, power.

Pure functions of arrays, without files, models or pytest.
"""
