"""What several exhibits share: cells of tables, style and panels of figures, the data card of a candidate set."""
