"""Speed: each path side by side with a baseline that is measured in the same run."""
