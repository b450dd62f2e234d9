"""`paddle.dataset`: readers of local files in their original formats, or of made-up samples; nothing is downloaded."""
