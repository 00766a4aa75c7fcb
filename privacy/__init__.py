"""Clipping, noise, accounting and secure aggregation: pure, importing no other part.

Nothing stands here yet. A plan has no `[privacy]` section, and one that asks for privacy is
refused as an unknown field: no run can believe that it is protected by what does not exist.
"""
