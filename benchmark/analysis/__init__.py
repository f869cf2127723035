"""From runs to numbers: statistics, comparisons of methods, published numbers, and `Table` with its renderings. No torch."""
