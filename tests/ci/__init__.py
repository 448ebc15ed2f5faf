"""What teams copy into their CI: the action, samples of other services, images."""
