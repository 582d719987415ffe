"""The pages' pictures, as SVG: text made on the server, whose colours come from the style sheet."""
