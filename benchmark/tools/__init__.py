"""For maintainers: `python -m benchmark.tools.docs` renews generated docs, `…tools.speed` measures training steps and views,
`…tools.pretrain` makes the small network's weights.

May import everything; nothing imports it.
"""
