"""The page results/report.html: what it says (sections, curves), how it looks (page.html, page.css, page.js).

May import exhibits and everything left of them. `page` is the entrance; it reads a results folder and trusts nothing in it.
"""
