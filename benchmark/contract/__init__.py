"""What every method must keep: the claims, the examiner that tries them on the real trainer, the engine of `check`.

May import everything below the command line. Tests and plug-in authors run the same claims.
"""
