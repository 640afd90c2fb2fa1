//! Affine maps, as torchvision states them: shear, rotation, scale and shift about a centre.

/// An affine map of an image; x to the right, y down, both from the middle of the image.
#[derive(Debug, Clone, Copy)]
pub(in crate::transform) struct Affine {
    /// Clockwise, in degrees.
    pub angle: f64,
    /// Columns and rows that the image moves.
    pub translate: (f64, f64),
    pub scale: f64,
    /// In x and in y, in degrees.
    pub shear: (f64, f64),
    /// What stays in place, but for `translate`.
    pub centre: (f64, f64),
}

impl Affine {
    /// Changes nothing.
    pub const IDENTITY: Self =
        Self { angle: 0.0, translate: (0.0, 0.0), scale: 1.0, shear: (0.0, 0.0), centre: (0.0, 0.0) };

    /// Where target pixels come from: x' = m0 x + m1 y + m2, y' = m3 x + m4 y + m5.
    pub fn inverse(&self) -> [f64; 6] {
        let (angle, shear_x, shear_y) = (self.angle.to_radians(), self.shear.0.to_radians(), self.shear.1.to_radians());
        let ((cx, cy), (tx, ty)) = (self.centre, self.translate);
        let turned = angle - shear_y;
        // the map without its scale is (a, b; c, d), of determinant 1
        let a = turned.cos() / shear_y.cos();
        let b = -(a * shear_x.tan() + angle.sin());
        let c = turned.sin() / shear_y.cos();
        let d = angle.cos() - c * shear_x.tan();
        let [m0, m1, m3, m4] = [d, -b, -c, a].map(|x| x / self.scale);
        let m2 = cx - m0 * (cx + tx) - m1 * (cy + ty);
        let m5 = cy - m3 * (cx + tx) - m4 * (cy + ty);
        [m0, m1, m2, m3, m4, m5]
    }
}
