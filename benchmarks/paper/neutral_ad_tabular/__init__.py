"""NeuTraL AD for rows of a table, for the paper's study; the product judges sequences.

A row of D numbers is a window of one sample: training sets are [N, D, 1]. Mask networks are Linear, ReLU, Linear, the
encoder is five linear layers with ReLU between, all without bias. Loss, score, training and artifact are those of
``streamad_models.neutral_ad``. Without bias a score depends on the direction of x, not on its length: with
``feed_forward`` and ``residual``, x and 50 x have the same score. So centred attributes hide the size of a deviation
(the scaling ``range`` keeps the origin at the edge of the data), and a table of one attribute is refused. Defaults are
those published for Thyroid; automatic widths are D within the published ones of D = 6 and 274.
"""
