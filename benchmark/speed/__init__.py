"""The gauges behind `speed`: each method against the bare loop of its networks, and single parts against their plain form.

May import everything below the command line. Nothing trains with what is in here, and nothing else imports it.
"""
