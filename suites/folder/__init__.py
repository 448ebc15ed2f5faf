"""Any folder of images."""
